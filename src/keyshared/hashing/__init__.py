"""Named hashes of keys that are the same everywhere, and those of Pulsar, Danube and Celeriant.

A placement maps the hash of a key to a slot. All parties that compute slots have to use the same hash.

>>> XXH64_SEED_42.slot(b"order-1", 16)
34068
"""

from keyshared.hashing.named import (
    CELERIANT_BE,
    CELERIANT_LE,
    DANUBE_32,
    DEFAULT_SLOT_BITS,
    KEY_HASHES,
    MAX_SLOT_BITS,
    MURMUR3_32,
    PULSAR_RANGES,
    PULSAR_RING,
    XXH64_SEED_42,
    Key,
    KeyHash,
    danube32,
    fnv64,
    key_bytes,
    key_hash_named,
    pulsar_range_hash,
    pulsar_ring_hash,
    required_key_bytes,
)

__all__ = [
    "CELERIANT_BE",
    "CELERIANT_LE",
    "DANUBE_32",
    "DEFAULT_SLOT_BITS",
    "KEY_HASHES",
    "MAX_SLOT_BITS",
    "MURMUR3_32",
    "PULSAR_RANGES",
    "PULSAR_RING",
    "XXH64_SEED_42",
    "Key",
    "KeyHash",
    "danube32",
    "fnv64",
    "key_bytes",
    "key_hash_named",
    "pulsar_range_hash",
    "pulsar_ring_hash",
    "required_key_bytes",
]
