"""What every test may ask for."""

import signal

pytest_plugins = ["pytester", "tests.servers.fixtures", "tests.servers.database_fixtures"]

for _number in (signal.SIGHUP, signal.SIGINT):
    # nohup, and a shell that starts us in the background, have us ignore them; programs that tests start would inherit
    # that, and some are tested by these signals. A handler that does nothing is not inherited.
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)
