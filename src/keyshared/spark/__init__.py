"""Thin PySpark adapter: functions from DataFrame to DataFrame and from Column to Column over keyshared's own values.

Needs the extra ``keyshared[spark]`` and Java. Nothing mutable is shipped to the workers: a placement goes along as a
frozen value, state is built inside the partition. Where Spark can do the work without Python, it is a native column
expression.
"""
