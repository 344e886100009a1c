"""Arrays on a GPU in groups of our own engine, without NCCL: several ranks may share one GPU.

routes.py               which way an op takes: chosen alike on all ranks
capabilities.py         what the ranks of a group have for it
driver.py cuda_functions.py cuda_without_cupy.py    CuPy and CUDA of this process
control_group.py        how the ranks agree in an op: a group in shared memory beside the host's
host_memory.py chunks.py exchanges.py    through pinned memory, piece by piece
pinned_memory.py held_copies.py    how much of it there may be, and what failed ops leave to the device
exports.py ipc_info.py mappings.py    memory that ranks open of each other, and what they say of it
schedule.py kernels.py  from the ranks' memory to copies and reductions: plain data, and the CUDA text
ipc.py                  one op in which ranks read and write each other's memory
message_offer.py message_memory.py    what a message says of its sender's memory, and what is kept open
messages.py transfer.py    messages that the receiver takes from the sender's device
message_pieces.py       those that go through pinned memory, piece by piece
engine.py pending.py    all of it as an Engine
issued_record.py beside_host.py    that with a record, made by the first op that needs it
"""
