"""Results as in the answers of the broker, and whether they are those of a vector."""

import base64
import dataclasses
from datetime import datetime, timedelta, timezone

from dwell import DwellError, NewMessage, PushManyError, Unavailable
from dwell.values import seconds


def options_of(begun):
    """The arguments for a client of a vector."""
    vector = begun["vector"]
    options = {"token_file": begun["token_file"] if "token" in vector else None, "timeout": 10}
    retry_for = vector.get("client", {}).get("retry_for", "30s")
    return options if retry_for == "default" else {**options, "retry_for": seconds(retry_for)}


def plain(value):
    """A result as in the answers of the broker."""
    if isinstance(value, DwellError):
        return {"error": described(value)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        value = {f.name.rstrip("_"): getattr(value, f.name) for f in dataclasses.fields(value) if not f.name.startswith("_")}
        if isinstance(payload := value.pop("payload", None), bytes):
            value["payload_base64"] = base64.b64encode(payload).decode()
            value["payload_text"] = payload.decode(errors="replace")
    if isinstance(value, dict):
        return {name + "_ms" * is_duration(item): plain(item) for name, item in value.items()}
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value


def is_duration(value):
    return isinstance(value, timedelta) or (isinstance(value, list) and bool(value) and isinstance(value[0], timedelta))


def described(error):
    """An error as vectors describe it."""
    kind = {Unavailable: "unavailable", PushManyError: "push_many"}.get(type(error), "refused")
    return {"kind": kind, "status": error.status, "type": error.type, "detail": error.detail, "request_id": error.request_id,
            "repeated": error.repeated, "groups": error.problem.get("groups"), "missing": error.problem.get("missing"),
            "results": plain(getattr(error, "results", [])), "has_cause": error.__cause__ is not None}


def differs(expected, actual):
    """Whether something expected is not there; `<x>` is any value."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return any(differs(value, actual.get(name)) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) != len(actual) or any(map(differs, expected, actual))
    return expected != actual and not (isinstance(expected, str) and expected.startswith("<"))


def differs_error(expected, error, server):
    """A text with the difference between an error and its description, or None."""
    expected = dict(expected)
    texts = [text.replace("<server>", server) for text in expected.pop("text_has", [])]
    kinds = {"argument": (ValueError, TypeError), "closed": RuntimeError}
    if wanted := kinds.get(expected["kind"]):
        return None if isinstance(error, wanted) else f"{error!r} is not {expected['kind']}"
    if not isinstance(error, DwellError):
        return f"{error!r} is not {expected}"
    if missing := [text for text in texts if text not in str(error)]:
        return f"{missing} is not in {error}"
    return f"{expected} but {described(error)}" if differs(expected, described(error)) else None


def message(fields):
    """The payload and the options of a push."""
    fields = dict(fields)
    times = fields.pop("times", None)
    if "payload_json" in fields:
        fields["payload"] = fields.pop("payload_json")
    if "payload_base64" in fields:
        fields["payload"] = base64.b64decode(fields.pop("payload_base64"))
    payload = fields.pop("payload")
    return payload * times if times else payload, fields


def new_message(fields):
    payload, options = message(fields)
    return NewMessage(payload, **options)


@dataclasses.dataclass
class Named:
    """A message that is given by its id and key."""

    id: str
    key: str | None = None


def call_of(step):
    """The name, the arguments and the options of a call, in the words of this client."""
    name, args = step["call"], dict(step["args"])
    options = {{"from": "from_", "for": "for_", "limit": "limit"}.get(option, option): value for option, value in args.items()}
    places = [options.pop(place) for place in ("topic", "group", "key", "name", "id", "to") if place in options and place in PLACES.get(name, ())]
    settings = options.pop("settings", {})
    if name == "push":
        payload, options = message(options)
        return name, [*places, payload], options
    if name == "push_many":
        messages = options.get("messages") or [{name: value for name, value in options.items() if name != "repeat"}] * options["repeat"]
        return name, [*places, [new_message(fields) for fields in messages]], {}
    if name == "put_cron":
        payload, settings = message(settings)
        places.append(payload)
    if name in ("list", "dead_letters") and "limit" in options:
        options["page_size"] = options.pop("limit")
    if "messages" in options:
        places.append([Named(**named) if "key" in named else named["id"] for named in options.pop("messages")])
    if name == "repair":
        name, options = "verify", {**options, "repair": True}
    settings = {"from_" if setting == "from" else setting: value for setting, value in settings.items()}
    return {"bulk_count": "count_bulk"}.get(name, name), places, {**options, **settings}


TOPIC, GROUP = ("topic",), ("topic", "group")
PLACES = {
    **dict.fromkeys(("push", "push_many", "create_topic", "topic", "delete_topic", "groups", "list", "crons"), TOPIC),
    **dict.fromkeys(("get_many", "cancel_many", "reschedule_many"), TOPIC),
    **dict.fromkeys(("get", "cancel", "reschedule", "explain"), ("topic", "id")),
    **dict.fromkeys(("group", "create_group", "delete_group", "pause", "resume", "purge", "dead_letters", "redrive"), GROUP),
    **dict.fromkeys(("purge_dead_letters", "bulk", "bulk_count", "forecast", "verify", "repair"), GROUP),
    **dict.fromkeys(("put_cron", "cron", "pause_cron", "resume_cron", "delete_cron"), ("topic", "name")),
    **dict.fromkeys(("pause_key", "resume_key"), ("topic", "group", "key")),
    "move": ("topic", "to"),
}
