"""Secrets that are known by their form, whatever stands beside them.

The kinds are those that detect-secrets and gitleaks look for, and those that training jobs use.
Each entry names texts of which one must be there before its pattern is tried: most texts hold none
of them, and a search for a fixed text costs next to nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache

REDACTED = "<redacted>"

_Form = tuple[tuple[str, ...], str]

# Prefixes after which a secret follows, to the end of the word.
_PREFIXES = (
    "AGE-SECRET-KEY-1", "ATATT3", "ATCTT3", "CCIPAT_", "CCIPRJ_", "CLOJARS_", "EZAK", "EZTK",
    "FLWSECK", "GOCSPX-", "GR1348941", "KGAT_", "NRAK-", "NRJS-", "PMAK-", "api_org_", "csk-",
    "dckr_oat_", "dckr_pat_", "doo_v1_", "dop_v1_", "dor_v1_", "dp.pt.", "dt0c01.", "e2b_",
    "esecret_", "figd_", "fm1_", "fm2_", "fw_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_",
    "github_pat_", "glagent-", "glcbt-", "gldt-", "glft-", "glimt-", "glpat-", "glptt-", "glrt-",
    "glsa_", "glsoat-", "gsk_", "hf_", "hvb.", "hvr.", "jina_", "lin_api_", "lsv2_", "npm_", "ntn_",
    "nvapi-", "ops_eyJ", "pcsk_", "pk_live_", "pk_test_", "pnu_", "pplx-", "pscale_", "rdme_",
    "rk_live_", "rk_test_", "rpa_", "rubygems_", "s-s4t2ud-", "sbp_", "sha256~", "shippo_",
    "shpat_", "shpca_", "shppa_", "shpss_", "sk_live_", "sk_test_", "sntrys_", "sntryu_", "sq0atp-",
    "sq0csp-", "tfp_", "tgp_v1_", "tk-us-", "tskey-", "tvly-", "wandb_v1_", "whsec_", "xapp-",
    "xkeysib-", "xoxa-", "xoxb-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "ya29.",
)  # fmt: skip
_NOT_IN_WORD = r"(?<![A-Za-z0-9])"
# Names in snake case are no secrets: a digit, a capital or one long word must follow.
_MIXED = r"(?=[\w.~-]{0,48}[0-9A-Z]|[A-Za-z0-9]{16,99}(?![\w-]))"


def _form(needles: str, pattern: str) -> _Form:
    return tuple(needles.split()), _NOT_IN_WORD + pattern


@cache  # compiling all of them takes longer than most commands
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_FORMS: tuple[_Form, ...] = (
    _form(" ".join(_PREFIXES), rf"(?:{'|'.join(map(re.escape, _PREFIXES))}){_MIXED}[\w.~-]{{14,}}"),
    _form("sk- pk- sk_ sess-", rf"(?:sk|pk|sess)[-_]{_MIXED}[\w-]{{16,}}"),
    _form("hooks.slack.com/", r"hooks\.slack\.com/[a-z]+/[\w/+-]{10,}"),
    _form("/api/webhooks/", r"discord(?:app)?\.com/api/webhooks/[\w/-]{10,}"),
    _form("pypi-", r"pypi-(?:AgE[\w-]{16,}|[\w-]{60,})"),
    _form("r8_ glc_ aio_ hvs. xai-", rf"(?:r8_|glc_|aio_|hvs\.|xai-){_MIXED}[\w+/=-]{{20,}}"),
    _form("secret_", r"secret_[A-Za-z0-9]{40,}"),
    _form("pat- patA pat", r"pat-[a-z0-9]{2,4}-[0-9a-f-]{30,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _form("cio ATBB", r"(?:cio[A-Za-z0-9]{32}|ATBB[A-Za-z0-9]{24,})(?!\w)"),
    _form("pul- fo1_ 1//", r"(?:pul-[0-9a-f]{40}|fo1_[\w-]{40,}|1//0[\w-]{30,})"),
    _form("local-", r"local-[0-9a-f]{40}(?!\w)"),
    _form("SG.", r"SG\.[\w-]{16,32}\.[\w-]{16,64}"),
    _form("v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}"),
    # AWS: the id of a key, and the key where it stands beside the id
    _form(
        "AKIA ASIA AGPA AIDA AROA AIPA ANPA ANVA ABIA ACCA A3T",
        r"(?:A3T[A-Z0-9]|A[KS]IA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])"
        r"(?:[ \t:,\"']{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
    ),
    _form("amzn.mws.", r"amzn\.mws\.[0-9a-f-]{36}"),
    _form("AIza", r"AIza[\w-]{30,}"),
    _form("LTAI AKID", r"(?:LTAI[A-Za-z0-9]{12,30}|AKID[A-Za-z0-9]{28,40})(?!\w)"),
    _form("AQVN EAAA EAAC", r"(?:AQVN[\w-]{30,}|EAA[AC][\w-]{40,})"),
    _form("AC SK", r"(?:AC|SK)[0-9a-f]{32}(?!\w)"),
    _form("dapi", r"dapi[0-9a-f]{32}(?:-[0-9])?(?!\w)"),
    _form("key-", r"key-[0-9a-f]{32}(?!\w)"),
    _form("-us", r"[0-9a-f]{32}-us[0-9]{1,2}(?!\w)"),
    _form("AKC AP", r"(?:AKC[A-Za-z0-9]{30,}|AP[0-9A-F][A-Za-z0-9]{30,})"),
    _form(".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}"),
    _form("AAAA", r"(?:AAAA[\w-]{7}:[\w-]{100,}|AAAAAAAA[A-Za-z0-9%]{50,})"),
    _form(":", r"(?:bot)?[0-9]{8,10}:[\w-]{35}(?![\w-])"),  # a bot of Telegram
    _form("api.telegram.org/bot", r"(?<=api\.telegram\.org/)bot[\w:-]{10,80}"),
    _form(".", r"[MNO][\w-]{22,27}\.[\w-]{6,7}\.[\w-]{25,40}(?![\w-])"),  # a bot of Discord
    _form("mfa.", r"mfa\.[\w-]{60,}"),
    # JSON web tokens, and base64 of any other JSON object
    _form("eyJ", r"eyJ[\w+/-]{10,}={0,2}(?:\.[\w+/=-]{0,9999}){0,4}"),
    # addresses that are secrets themselves
    _form(
        "hook",
        r"(?<=://)(?:hooks\.[\w.-]{1,99}|[\w.-]{1,99}(?:/[\w.-]{1,60}){0,4}/(?:web)?hooks?\w{0,4})"
        r"/[\w@./-]{8,}",
    ),
    _form("maker.ifttt.com", r"(?<=/with/)key/[\w-]{8,}"),
    _form("://ntfy.sh/ ://hc-ping.com/", r"(?:(?<=://ntfy\.sh/)|(?<=://hc-ping\.com/))[\w-]+"),
    _form("code=", r"(?<=[?&]code=)[\w.~%/-]{16,}"),
    _form("://", r"(?<=://)[^/\s\"'<>]{1,512}(?=@)"),
    _form("googleusercontent.com", r"[0-9]{6,20}-[a-z0-9]{16,40}(?=\.apps\.googleusercontent)"),
    # headers and options
    _form(
        "earer EARER",
        r"(?i:(?<=bearer )|(?<=bearer  ))(?=\S{0,200}[0-9]|\S{1,200}[A-Z]|\S{20})[\w.~+/=-]{6,}",
    ),
    _form("-u", r"(?:(?<=[ \"']-u )|(?<=-user )|(?<=-user=))[^\s:/]{1,64}:[^\s\"']+"),
    _form(
        "login",  # a line of ~/.netrc
        r"(?:(?<=password )|(?<=passwd )|(?<=account ))"
        r"(?![!=:|>\\\u2192\u21d2-]|is\s|was\s|for\s)\S+",
    ),
    _form("login(", r"(?<=login\([\"'])(?=[^\"']{0,60}[0-9])[^\s\"']{12,}"),
    _form(":5432:", r"(?<=:5432:)[\w*.-]{1,64}:[\w*.-]{1,64}:[^\s\"']+"),  # a line of ~/.pgpass
    _form("<Cookie", r"(?<=<Cookie )[^\s=]{1,99}=\S+"),
    _form("DENTIFIED dentified", r"(?i:(?<=identified by ['\"]))[^'\"\n]+"),
    _form("$", r"\$(?:2[abxy]|[156y]|argon2\w{1,3})\$[^\s:\"']{20,}"),  # hashes of passwords
    _form("LS0tLS1CRUdJTi", r"LS0tLS1CRUdJTi[\w+/=-]+"),  # base64 of a key or a certificate
)
_NEEDLES = tuple({needle for needles, _ in _FORMS for needle in needles})
# Programs that take a password after an option of one letter.
_OPTION = re.compile(
    r"(?P<kept>\b(?:(?:mysql|mariadb|7z|sshpass)\w{0,9}\b[^\n]{0,200}?\s-p"
    r"|(?:(?:docker|podman) login|sshpass|unzip|sqlcmd)\b[^\n]{0,200}?\s-[pP]\s+"
    r"|redis-cli\b[^\n]{0,200}?\s-a\s+|ldap\w{3,8}\b[^\n]{0,200}?\s-w\s+"
    r"|\bwandb login\s+(?!-)))(?:'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|[^\s\"'<]+)"
)
_BASIC = re.compile(r"(?i:\bbasic)[ \t]+(?P<code>[A-Za-z0-9+/_-]{6,}={0,2})")
# 40 hexadecimal digits are a key of Weights & Biases, or a commit; these words tell them apart.
_HEX_40 = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
_COMMIT = re.compile(
    r"(?:git|commit|rev|sha|hash|version|tree|head|ref|blob|snapshot|object|branch|tag|build|@|#|\+g)"
    r"[\w\"'()/ :=.@-]{0,24}$",
    re.IGNORECASE,
)
# One line of a key that was broken into lines.
_KEY_LINE = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{64,76}(?![A-Za-z0-9+/])")
_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_BODY = re.compile(r"[A-Za-z0-9+/=]{16,}\W{0,4}$")
_LOOK_BACK = 32
_WORDS = 3  # between slashes, from which on it is a path
_OF_EACH = 5  # capitals, small letters and digits in a line of a key, at least


def replace_forms(text: str) -> str:
    """Replace every secret that its form gives away."""
    if any(map(text.__contains__, _NEEDLES)):  # few texts have one
        for needles, pattern in _FORMS:
            if any(needle in text for needle in needles):
                text = _compiled(pattern).sub(REDACTED, text)
    text = _OPTION.sub(lambda found: found["kept"] + REDACTED, text)
    text = _KEY_LINE.sub(_if_random, text)
    text = _HEX_40.sub(_unless_commit, text)
    if "asic" in text or "ASIC" in text:
        text = _BASIC.sub(_if_credentials, text)
    return text


def without_keys(lines: list[str]) -> list[str]:
    """Replace private keys and certificates, which take several lines; the number of lines stays.

    Where the end is missing, lines that look like the inside of a key go as well.
    """
    if not any(_BEGIN in line or _END in line for line in lines):
        return lines
    done: list[str] = []
    inside = False
    for line in lines:
        kept, inside = _without_key(line, inside=inside)
        if _END in line and _BEGIN not in line:
            _hide_body(done)
        done.append(kept)
    return done


def _without_key(line: str, *, inside: bool) -> tuple[str, bool]:
    """Return one line without keys, and whether the next line is inside one."""
    done: list[str] = []
    at = 0
    while True:
        if inside:
            end = line.find(_END, at)
            if end < 0:
                rest = line[at:]
                body = at > 0 or _BODY.search(rest) or ":" in rest or not rest.strip()
                return "".join((*done, REDACTED if body and rest.strip() else rest)), bool(body)
            closed = line.find(_DASHES, end + len(_END))
            at = len(line) if closed < 0 else closed + len(_DASHES)
            done.append(REDACTED)
            inside = False
        begin = line.find(_BEGIN, at)
        if begin < 0:
            done.append(line[at:])
            return "".join(done), False
        done.append(line[at:begin])
        at, inside = begin, True


def _hide_body(done: list[str]) -> None:
    """Hide the lines above the end of a key whose beginning was cut off."""
    for index in range(len(done) - 1, -1, -1):
        if not _BODY.search(done[index]):
            return
        done[index] = REDACTED


def is_commit(name: str, value: str) -> bool:
    """Tell whether a value beside this name is a commit, such as ``git_version``."""
    return bool(_HEX_40.fullmatch(value) and _COMMIT.search(f"{name}=".lower()))


def _unless_commit(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - _LOOK_BACK) : found.start()]
    return found.group() if _COMMIT.search(before) else REDACTED


def _if_random(found: re.Match[str]) -> str:
    """Tell a line of a key from a long path: all sorts of characters are in it, and few words."""
    line = found.group()
    counts = (sum(map(sort, line)) for sort in (str.isupper, str.islower, str.isdigit))
    words = [part for part in line.split("/") if part.isalpha()]
    return REDACTED if min(counts) >= _OF_EACH and len(words) < _WORDS else line


def _if_credentials(found: re.Match[str]) -> str:
    """Tell credentials from words after "basic": they are base64 of a name, a colon, a password."""
    code = found["code"]
    try:
        told = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return found.group()
    before = found.string[max(0, found.start() - _LOOK_BACK) : found.start()].lower()
    if b":" not in told and "authorization" not in before:
        return found.group()
    return found.group()[: -len(code)] + REDACTED
