"""python -m distdbg.agent"""

import sys

from distdbg.agent.main import main

sys.exit(main(sys.argv[1:]))
