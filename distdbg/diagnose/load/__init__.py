"""Sessions from run folders, living ranks, and what other tools wrote. The only readers of files."""
