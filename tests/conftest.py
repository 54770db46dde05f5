"""What every test may ask for."""

pytest_plugins = ["pytester", "tests.servers.fixtures", "tests.servers.database_fixtures"]
