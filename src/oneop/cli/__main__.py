"""python -m oneop.cli"""

from oneop.cli import main

main()
