"""The facade of the compiled extension: the only module that imports ``distdbg._native``.

Reading and diagnosing a run needs none of this; whoever imports it gets one clear error when
the extension is missing, instead of an ImportError from the middle of a training script.
"""

from __future__ import annotations

from distdbg.errors import ConfigError

try:
    from distdbg import _native
except ImportError as error:
    raise ConfigError(
        "the compiled part of distdbg (distdbg._native) cannot be loaded",
        details=[str(error)],
        hint="install distdbg with pip for this Python version; "
        "reading records and `distdbg analyze` work without it",
    ) from error

BegunOp = _native.BegunOp
NativeError = _native.Error
View = _native.View
Watched = _native.Watched
Control = _native.Control
find_nonfinite = _native.find_nonfinite
is_shared = _native.is_shared
list_shared_arrays = _native.list_shared_arrays
make_shared_array = _native.make_shared_array
shared_arrays = _native.shared_arrays
reduce = _native.reduce
divide = _native.divide
EventReader = _native.EventReader
Form = _native.Form
KnownCaller = _native.KnownCaller
KnownBucket = _native.KnownBucket
KnownCalls = _native.KnownCalls
Group = _native.Group
Message = _native.Message
MessageLook = _native.MessageLook
NotedOption = _native.NotedOption
Op = _native.Op
Plan = _native.Plan
QueuedBegin = _native.QueuedBegin
QueuedOps = _native.QueuedOps
RecordedOp = _native.RecordedOp
Recorder = _native.Recorder
ReducerOp = _native.ReducerOp
ShortWay = _native.ShortWay
StoreClient = _native.StoreClient
StoreServer = _native.StoreServer
StreamEvents = _native.StreamEvents
TappedEnd = _native.TappedEnd
TappedMessages = _native.TappedMessages
TappedOp = _native.TappedOp
TappedOps = _native.TappedOps
TcpHub = _native.TcpHub
TcpRelay = _native.TcpRelay
TcpRelayed = _native.TcpRelayed
TorchKeys = _native.TorchKeys
UcxEngine = _native.UcxEngine
