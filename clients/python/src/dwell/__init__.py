"""Client of dwell, a delay broker: push messages with a delay, and handle them when they are due."""

from ._async_client import AsyncClient
from ._async_producer import AsyncProducer
from ._client import Client
from .answers import (
    AttentionItem, AttentionList, BulkChanged, Contents, Control, Counts, CronJob, DeadLetter, DeadLetterSource, Due, Explained,
    FailedAttempt, Findings, Found, Group, GroupDescription, GroupFate, GroupForecast, GroupKeys, GroupReason, GroupTotals, KeyPause, KeyState,
    LastError, ListedBroker, ListedMessage, Member, Message, Moved, PartitionState, Purged, PushResult, Redriven, Topic, TopicDescription,
)
from .delivery import Bury, Delivery, Retry, Stats
from .errors import DwellError, PushManyError, Unavailable
from .producer import Producer
from .settings import (
    DeadLetterTopic, DeliveryWindow, ExponentialBackoff, Identified, KeyLimit, LadderBackoff, NewMessage, PushOptions, TopicSettings,
)
from .values import Duration, Time
from .worker import Worker

__all__ = [
    "AsyncClient", "AsyncProducer", "AttentionItem", "AttentionList", "BulkChanged", "Bury", "Client", "Contents", "Control", "Counts",
    "CronJob", "DeadLetter", "DeadLetterSource", "DeadLetterTopic", "Delivery", "DeliveryWindow", "Due", "Duration", "DwellError",
    "Explained", "ExponentialBackoff", "FailedAttempt", "Findings", "Found", "Group", "GroupDescription", "GroupFate", "GroupForecast",
    "GroupKeys", "GroupReason", "GroupTotals", "Identified", "KeyLimit", "KeyPause", "KeyState", "LadderBackoff", "LastError", "ListedBroker",
    "ListedMessage", "Member", "Message", "Moved", "NewMessage", "PartitionState", "Producer", "Purged", "PushManyError", "PushOptions", "PushResult",
    "Redriven", "Retry", "Stats", "Time", "Topic", "TopicDescription", "TopicSettings", "Unavailable", "Worker",
]
__version__ = "0.1.0"
