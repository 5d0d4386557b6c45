"""Several clusters: were records copied as they should be, and where does a consumer group go on?"""

__all__: tuple[str, ...] = ()
