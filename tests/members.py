"""What a member of a class is, be the class interpreted or compiled: as `inspect.getattr_static` finds it."""

import inspect
from types import ClassMethodDescriptorType

__all__ = ["is_property", "needs_no_object"]


def is_property(member: object) -> bool:
    """Whether it is a property. Compiled, fields look alike but have no docstring."""
    return isinstance(member, property) or (inspect.isgetsetdescriptor(member) and bool(member.__doc__))


def needs_no_object(member: object) -> bool:
    """Whether it is a class method or a static one."""
    return isinstance(member, classmethod | staticmethod | ClassMethodDescriptorType)
