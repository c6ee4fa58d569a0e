"""The `Authorization` header, made anew for each request on the machine that sends it.

A token in a file or in the environment is read each time, so that one that is rotated there is
taken up without a restart. Called by `client`.
"""

import base64
import os
import re
from pathlib import Path

from pyspark_curlew.errors import AccessDenied
from pyspark_curlew.http.http_options import Credentials


def authorization(credentials: Credentials) -> str | None:
    """The header's value; None without credentials; `AccessDenied` when a token is not there."""
    if credentials.username is not None:
        pair = f"{credentials.username}:{credentials.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    token = _token(credentials)
    return None if token is None else f"Bearer {token}"


def described(credentials: Credentials) -> str:
    """Where the credentials came from, for an error; never their value, nor the place that was
    given, for somebody may have written the token itself there."""
    if credentials.username is not None:
        return f"as user {credentials.username!r}"
    if credentials.token is not None:
        return "with option 'token'"
    if credentials.token_file is not None:
        return "with the token of the file that option 'tokenFile' names"
    if credentials.token_env is not None:
        return "with the token of the environment variable that option 'tokenEnv' names"
    return "without credentials"


def _token(credentials: Credentials) -> str | None:
    if credentials.token_file is not None:
        try:
            token = Path(credentials.token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise AccessDenied(
                "the file that option 'tokenFile' names cannot be read on this machine"
                f" ({type(error).__name__})"
            ) from None
    elif credentials.token_env is not None:
        token = os.environ.get(credentials.token_env, "").strip()
    else:
        return credentials.token
    if not re.fullmatch(r"[!-~]+", token):
        raise AccessDenied(
            f"there is no token to be sent {described(credentials)}, or it has a space or a"
            " character beyond ASCII in it"
        )
    return token
