"""What an op is: the words that the runtime and its check have in common. Neither is imported here.

call       one op as every layer sees it: the Call that a function of the API makes
reduce_op  ReduceOp as torch.distributed has it, and which ops are defined for which dtypes
dtypes     the element types, and how NumPy and torch call them
cuts       where the blocks of a Call lie in its arrays
engine     the seam between the API and whatever moves bytes: an Engine runs Calls
around     what an Engine or a Pending that stands around another one hands on
sites      call sites: which line of the program called an op, and how messages show it
"""
