"""Tables, migrations, columns of settings."""
