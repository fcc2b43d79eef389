"""A server's address and the key for it, checked before anything is sent. Knows nothing about what is asked."""

import httpx

from backscroll.errors import BackscrollError


def checked_address(base_url: str, error: type[BackscrollError], password_advice: str) -> str:
    """The address without a slash at its end.

    Args:
        base_url: begins with http:// or https://, and holds no password, since addresses stand in names and errors.
        error: what is raised where it does not.
        password_advice: where the password belongs instead.
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as cause:
        raise error(f"{base_url!r} is not an address: {cause}") from cause
    if url.scheme not in ("http", "https") or not url.host:
        raise error(f"{base_url!r} is not an address that begins with http:// or https://")
    if url.userinfo:
        raise error(f"the address of {url.host} has a password in it: {password_advice}")
    return base_url.rstrip("/")


def checked_key(key: str, error: type[BackscrollError], complaint: str) -> str:
    """The key without the line's end of the file that it came from; what a header cannot carry is complained of."""
    stripped = key.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise error(complaint)
    return stripped
