"""Keeps secrets out of everything people read: by key, by form, and by value (RELIABILITY rule 18).

Too much masked is a nuisance, too little a leak; so a key that the table knows is judged by the table
(`stores.token.changelog` is no secret), any other by the words in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from grete.config.keys import find_key
from grete.config.reference import REFERENCE

MASK = "********"
_SECRET_WORD = re.compile(
    r"^sensitive\.|passw(?:or)?d|passphrase|pwd|secret|token|credential|jaas|connection[._-]?string|\bsas\b"
    # A key at the end of the name is one that opens something, unless it says which part of a record it is.
    r"|(?:^|[._-])(?:api|access|account|shared|private|secret|encryption|master|storage|signing)?[._-]?key\s*\Z"
    r"|(?-i:[a-z]Key)\s*\Z|apikey|accesskey|accountkey",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(?:key|msg|value|message)\.(?:de)?serializer(?:\.class)?\Z|\.serde\Z|tokeniz|(?:partition|group|sort|order|join)"
    r"[._-]?key\Z|keytab\Z|\.redaction\.",
    re.IGNORECASE,
)
# Bounded repetition: an unbounded scheme made the search quadratic on a megabyte of letters.
_URL_USERINFO = re.compile(r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s]{1,1024}@")
_URL_PASSWORD = re.compile(r"://[^/\s:@?#]{0,256}:(?P<value>[^/\s?#]{1,1024})@")
_ORACLE_LOGIN = re.compile(
    r"(?P<scheme>jdbc:oracle:[a-z0-9]{1,20}:)[^/\s@]{1,256}/(?P<value>[^\s]{1,256})@", re.IGNORECASE
)
_ORACLE = "jdbc:oracle:"
_ASSIGNED = re.compile(
    r"(?P<name>(?:password|passwd|pwd|secret|token|AccountKey|SharedAccessKey|SharedAccessSignature|sig|api[_-]?key"
    r"|access[_-]?key|client[_-]?secret)['\"]?[ \t]?[=:][ \t]?)"
    r"(?P<value>\"[^\"]{0,4096}\"|'[^']{0,4096}'|[^\s;,&\"']+)",
    re.IGNORECASE,
)
_WORDS_OF_ASSIGNED = ("passw", "pwd", "secret", "token", "key", "sharedaccess", "sig")
"""Looked for first: the pattern alone takes a second for 5 MB."""
_BARE_COLON = re.compile(r"\w[ \t]?:[ \t]?\Z")
_BEARER = re.compile(r"(?P<name>\bBearer )[A-Za-z0-9._~+/=-]+", re.IGNORECASE)
_JAAS_OPTION = re.compile(r"""\b(\w+)\s*=\s*("[^"]*"|'[^']*'|[^\s;"']*)""")
_SET_ASIDE = "\0"
"""In the place of a reference: no text that is set by people has it, and no pattern stops at it."""
_SHORTEST = 6
"""A secret of fewer characters is not looked for in texts: masking every "true" would hide nothing."""


def is_secret_key(key: str) -> bool:
    """Whether a key's value is never shown."""
    if key.lower().startswith("sensitive."):
        return True
    known = find_key(key)
    if known is not None and not known.is_open:
        return known.is_secret
    return _NO_SECRET.search(key) is None and _SECRET_WORD.search(key) is not None


def is_reference(value: str) -> bool:
    """Whether the whole value is a reference such as `${env:NAME}`: that may be shown."""
    return REFERENCE.fullmatch(value) is not None


def writes_out_secret(key: str, value: str) -> bool:
    """Whether a value has a secret, by its key or in it by its form, that is no reference."""
    if value and is_secret_key(key) and REFERENCE.search(value) is None:
        return True
    if _NO_SECRET.search(key) is not None:
        return False
    found = (secret.strip("\"'") for secret in _secrets_by_form(REFERENCE.sub(_SET_ASIDE, value)))
    return any(secret and _SET_ASIDE not in secret for secret in found)


def _secrets_by_form(text: str) -> Iterator[str]:
    """Passwords in URLs, and what is assigned to a secret's name. A user alone in a URL is none: `abfss://container@account`."""
    lower = text.lower()
    if "://" in text:
        yield from (match["value"] for match in _URL_PASSWORD.finditer(text))
    if _ORACLE in lower:
        yield from (match["value"] for match in _ORACLE_LOGIN.finditer(text))
    if any(word in lower for word in _WORDS_OF_ASSIGNED):
        # with a colon only in a document: an image `shop/token:1.2` is none
        yield from (m["value"] for m in _ASSIGNED.finditer(text) if not _BARE_COLON.search(m["name"]))


def redact(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration for people: secrets masked, references to them shown as references."""
    hide = Redactor.of(config)
    return {key: hide.text(redact_value(key, value)) for key, value in config.items()}


def redact_value(key: str, value: str) -> str:
    """One value for people."""
    if is_secret_key(key) and not is_reference(value) and not _is_login_by_reference(key, value):
        return MASK
    return redact_forms(value)


def _is_login_by_reference(key: str, value: str) -> bool:
    """Whether a JAAS line has references for all but the user's name: it may be shown, and handed to containers."""
    if not key.endswith("sasl.jaas.config") or REFERENCE.search(value) is None:
        return False
    options = _JAAS_OPTION.findall(REFERENCE.sub("", value))
    return all(name == "username" or not text.strip("\"'") for name, text in options)


def redact_forms(text: str) -> str:
    """Mask what looks like a secret by its form: the login in a URL, `password=...`, a bearer token."""
    if "://" in text:
        text = _URL_USERINFO.sub(rf"\g<scheme>{MASK}@", text)
    lower = text.lower()
    if _ORACLE in lower:
        text = _ORACLE_LOGIN.sub(rf"\g<scheme>{MASK}@", text)
    if any(word in lower for word in _WORDS_OF_ASSIGNED):
        text = _ASSIGNED.sub(_keep_reference, text)
    return _BEARER.sub(rf"\g<name>{MASK}", text) if "bearer " in lower else text


def _keep_reference(match: re.Match[str]) -> str:
    return match[0] if is_reference(match["value"].strip("\"'")) else f"{match['name']}{MASK}"


class Redactor:
    """Masks known secret values wherever they turn up: in other values, in error texts, in log lines."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._secrets: set[str] = set()
        self.learn(secrets)

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Redactor:
        """One that knows the plain secrets of a configuration."""
        return cls(v for k, v in config.items() if is_secret_key(k) and redact_value(k, v) == MASK)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add secret values, for example ones that a reference was resolved to."""
        self._secrets.update(secret for secret in secrets if len(secret) >= _SHORTEST and secret != MASK)
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """The text without the secrets it knows."""
        return self._pattern.sub(MASK, text) if self._pattern is not None else text

    def everything(self, text: str) -> str:
        """As `text`, and without what looks like a secret by its form: for logs and error messages."""
        return self.text(redact_forms(text))
