"""Client of dwell, a delay broker: push messages with a delay, and handle them when they are due."""

from ._http import DwellError, Unavailable
from .client import Client, PushManyError
from .messages import Control, Message, NewMessage, PushResult
from .worker import Bury, Delivery, Retry, Stats, Worker

__all__ = [
    "Bury", "Client", "Control", "Delivery", "DwellError", "Message", "NewMessage", "PushManyError", "PushResult", "Retry",
    "Stats", "Unavailable", "Worker",
]
__version__ = "0.1.0"
