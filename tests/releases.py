"""Messages as other releases write them: an older one lacks the fields that it did not know, a newer one has more."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from shared.wire import codec

Encode = Callable[[Any], bytes]


def older(message: msgspec.Struct) -> bytes:
    """As the release wrote it that had none of the fields which it does not need, in any struct within."""
    return _pack(_values(message, _shortened))


def newer(message: msgspec.Struct) -> bytes:
    """As a release writes it that has more fields in every struct."""
    return _pack(_values(message, lambda _, values: [*values, "a field of the future", {"and": [2]}]))


def mixed(seed: int) -> Encode:
    """Each message as a release picked by seed writes it."""
    source, current = random.Random(seed), codec.encode
    return lambda message: source.choice((older, newer, current))(message)


def _pack(values: object) -> bytes:
    return bytes((codec.VERSION,)) + msgspec.msgpack.encode(values)


def _values(value: object, change: Callable[[msgspec.Struct, list[object]], list[object]]) -> object:
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        fields = [_values(getattr(value, name), change) for name in value.__struct_fields__]
        return [*([] if tag is None else [tag]), *change(value, fields)]
    if isinstance(value, tuple | list):
        return [_values(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _values(item, change) for key, item in value.items()}
    return value


def _shortened(message: msgspec.Struct, values: list[object]) -> list[object]:
    """Without the last fields that say nothing beyond their defaults."""
    for field in reversed(msgspec.structs.fields(message)):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default is msgspec.NODEFAULT or getattr(message, field.name) != default:
            break
        values = values[:-1]
    return values
