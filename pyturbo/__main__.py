import sys

from pyturbo.cli import main

sys.exit(main())
