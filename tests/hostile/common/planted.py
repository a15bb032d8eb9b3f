"""Secrets of many kinds to plant, made from one seed: nothing here opens anything.

The prefixes are put together here, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable
from typing import NamedTuple

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "_-"
EACH = 4  # secrets of a kind


class Planted(NamedTuple):
    kind: str
    text: str
    secret: str  # none of it may remain


class Maker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not to keep anything safe

    def some(self, alphabet: str, length: int) -> str:
        """Draw a text that begins and ends with a letter or a digit."""
        plain = [mark for mark in alphabet if mark.isalnum()]
        drawn = [self._random.choice(alphabet) for _ in range(length)]
        drawn[0], drawn[-1] = self._random.choice(plain), self._random.choice(plain)
        return "".join(drawn)


def _prefixed(prefix: str, length: int, alphabet: str = ALNUM) -> Callable[[Maker], str]:
    return lambda make: prefix + make.some(alphabet, length)


# Known by their form: the text is the secret.
FORMS: dict[str, Callable[[Maker], str]] = {
    "aws-id": _prefixed("AK" + "IA", 16, UPPER),
    "aws-temporary-id": _prefixed("AS" + "IA", 16, UPPER),
    "github-personal": _prefixed("gh" + "p_", 36),
    "github-server": _prefixed("gh" + "s_", 36),
    "github-fine-grained": _prefixed("github" + "_pat_", 70, ALNUM + "_"),
    "gitlab": _prefixed("gl" + "pat-", 20, URLSAFE),
    "hugging-face": _prefixed("h" + "f_", 34),
    "wandb": _prefixed("", 40, HEX),
    "openai": _prefixed("s" + "k-", 48),
    "openai-project": _prefixed("s" + "k-proj-", 60, URLSAFE),
    "anthropic": _prefixed("sk-" + "ant-api03-", 90, URLSAFE),
    "slack-bot": _prefixed("xo" + "xb-", 40, ALNUM),
    "slack-app": _prefixed("xa" + "pp-1-", 50, ALNUM),
    "discord": lambda m: f"M{m.some(ALNUM, 23)}.{m.some(ALNUM, 6)}.{m.some(URLSAFE, 27)}",
    "google-api": _prefixed("AI" + "za", 35, URLSAFE),
    "google-oauth": _prefixed("ya" + "29.", 60, URLSAFE),
    "google-client": _prefixed("GOC" + "SPX-", 28, URLSAFE),
    "npm": _prefixed("np" + "m_", 36),
    "pypi": _prefixed("pypi-" + "AgEIcHlwaS5vcmc", 70, URLSAFE),
    "digitalocean": _prefixed("do" + "p_v1_", 64, HEX),
    "stripe": _prefixed("sk_" + "live_", 24),
    "stripe-restricted": _prefixed("rk_" + "live_", 24),
    "sendgrid": lambda m: f"S{'G'}.{m.some(URLSAFE, 22)}.{m.some(URLSAFE, 43)}",
    "telegram": lambda m: f"{m.some('123456789', 9)}:{m.some(URLSAFE, 35)}",
    "jwt": lambda m: f"ey{'J'}{m.some(ALNUM, 20)}.{m.some(URLSAFE, 40)}.{m.some(URLSAFE, 43)}",
    "neptune": lambda m: "ey" + "J" + m.some(ALNUM, 80) + "==",
    "twilio": _prefixed("S" + "K", 32, HEX),
    "mailchimp": lambda m: m.some(HEX, 32) + "-us12",
    "mailgun": _prefixed("ke" + "y-", 32, HEX),
    "databricks": _prefixed("da" + "pi", 32, HEX),
    "docker": _prefixed("dckr" + "_pat_", 27, URLSAFE),
    "vault": _prefixed("hv" + "s.", 60, URLSAFE),
    "grafana": _prefixed("gl" + "sa_", 41, ALNUM),
    "sentry": _prefixed("sntr" + "ys_", 60, ALNUM),
    "nvidia": _prefixed("nv" + "api-", 60, URLSAFE),
    "groq": _prefixed("gs" + "k_", 52),
    "replicate": _prefixed("r" + "8_", 37),
    "runpod": _prefixed("rp" + "a_", 40),
    "langsmith": _prefixed("lsv2" + "_pt_", 40, HEX),
    "tailscale": _prefixed("ts" + "key-auth-", 40),
    "square": _prefixed("sq0" + "atp-", 22, URLSAFE),
    "shopify": _prefixed("shp" + "at_", 32, HEX),
    "artifactory": _prefixed("AK" + "C", 60, ALNUM),
    "tavily": _prefixed("tv" + "ly-", 32),
    "together": _prefixed("tgp" + "_v1_", 40, URLSAFE),
    "pinecone": _prefixed("pc" + "sk_", 60, ALNUM + "_"),
    "age": _prefixed("AGE-" + "SECRET-KEY-1", 58, UPPER),
}  # fmt: skip

# Known by what stands around them: the first is the text, the second the secret in it.
AROUND: dict[str, str] = {
    "password=": "password={}",
    "PASSWD=": "DB_PASSWD={}",
    "pwd:": "pwd: {}",
    "token json": '{{"access_token": "{}"}}',
    "token json in json": '{{\\"token\\": \\"{}\\"}}',
    "secret yaml": "client_secret: '{}'",
    "key python": "{{'api_key': '{}'}}",
    "aws secret": "AWS_SECRET_ACCESS_KEY={}",
    "sig in a signed address": "https://store.blob.core.windows.net/a?sv=2024&sig={}&se=2027",
    "signed address of S3": "https://b.s3.amazonaws.com/k?X-Amz-Expires=9&X-Amz-Signature={}",
    "auth": "auth={}",
    "npmrc": "//registry.npmjs.org/:_authToken={}",
    "credential": "X-Amz-Credential={}",
    "option": "python train.py --wandb-api-key {} --lr 3e-4",
    "option in a list": "Command ['python', 'train.py', '--hf-token', '{}'] failed",
    "option =": "--password={}",
    "account key": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};Suffix=y",
    "bearer": "Authorization: Bearer {}",
    "bearer alone": "sent header Bearer {}",
    "token header": "Authorization: token {}",
    "user and password in an address": "postgres://trainer:{}@db.example.org:5432/runs",
    "webhook of Slack": "https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/{}",
    "webhook of Discord": "https://discord.com/api/webhooks/123456789012345678/{}",
    "cookie": "Cookie: session={}",
    "netrc": "machine api.wandb.ai login user password {}",
    "curl": "curl -u trainer:{} https://example.org",
    "percent": "password%3D{}",
    "yaml words": "password: correct {} staple",
    "xml": "<password>{}</password>",
    "quoted after a space": "bad password '{}' for it",
    "kubernetes": "- name: HF_TOKEN\n  value: {}",
    "option on a line of its own": "args:\n  - --api-key\n  - {}",
    "yaml block": "private_key: |\n  {}\nnext: 1",
    "toml": 'passphrase = "{}"',
    "shell": "export WANDB_API_KEY='{}'",
    "yaml list": "passwords:\n  - first\n  - {}\nepochs: 3",
    "json list": '{{"api_keys": ["{}"], "epochs": 3}}',
    "json list on lines": '{{\n  "secrets": [\n    "a",\n    "{}"\n  ]\n}}',
    "table in a table": "{{'secret': {{'value': '{}'}}}}",
    "pair": "[('password', '{}'), ('epochs', '3')]",
    "name and value": '{{"name": "DB_PASSWORD", "value": "{}"}}',
    "set by a call": "os.environ.setdefault('WANDB_API_KEY', '{}')",
    "default of an option": 'add_argument("--password", default="{}")',
    "refused by pydantic": "api_key\n  Input should be an integer [input_value='{}', a=1]",
    "annotated": '    secret: str | None = "{}"',
    "compared": 'if password != "{}":',
    "digest": 'Authorization: Digest username="u", response="{}"',
    "cookie of a jar": "<Cookie session={} for .example.com/>",
    "session": "PHPSESSID={}",
    "setx": "setx API_TOKEN {}",
    "fish": "set -gx HF_TOKEN {}",
    "Dockerfile": "ENV SECRET_KEY {}",
    "aws configure": "aws configure set aws_secret_access_key {}",
    "mysql": "mysql -u root -p{} runs",
    "docker login": "docker login -u trainer -p {} registry.example.org",
    "redis": "redis-cli -a {} ping",
    "netrc account": "machine x login trainer account {} password y",
    "pgpass": "db:5432:runs:trainer:{}",
    "sql": "CREATE USER trainer IDENTIFIED BY '{}';",
    "hash of a password": "trainer:$6$saltsalt${}abcdef:19000:0",
    "key in base64": "LS0tLS1CRUdJTi{}",
    "authorization code": "https://example.org/back?code={}aaaa&state=1",
    "topic of ntfy": "https://ntfy.sh/{}",
    "said": "the password is {}",
    "said with": "logging in with password {} again",
    "row of a table": "| password | {} |",
    "row of a file": "password,{}",
    "on the next line": "password:\n{}\n",
    "next line of a command": "--password \\\n  {} \\\n  --lr 1",
    "coloured": "\x1b[32m'password'\x1b[0m: \x1b[32m'{}'\x1b[0m",
    "Passwort": "Passwort: {}",
    "name and value in XML": '<add key="AuthToken" value="{}"/>',
    "entity": "password&#61;{}",
    "wide sign": "password\uff1d{}",
    "sshpass": "sshpass -p '{}' ssh gpu-box",
    "semicolon": "secret;{}",
    "remark in between": "api_key (base64): {}",
    "wandb login": "wandb login {}",
    "php": "'db_password' => '{}'",
    "driver": "Driver=x;Server=y;Uid=sa;Pwd={};",
    "jdbc": "jdbc:postgresql://h/db?user=u&password={}",
    "helm": "--set auth.rootPassword={}",
    "namespace": "Namespace(lr=0.1, hub_token='{}')",
    "bytes": "password=b'{}'",
    "item": "cfg['password'] = '{}'",
    "SecretStr": "Config(password=SecretStr('{}'))",
    "fragment of an address": "https://x.example.org/cb#access_token={}",
    "openssl": "openssl enc -pass pass:{}",
    "gpg": "gpg --batch --passphrase {} -d x",
    "PowerShell": "$env:API_TOKEN = '{}'",
    "header of curl": 'curl -H "X-Api-Key: {}" https://example.org',
    "yaml below": "password:\n  {}\nepochs: 3",
    "yaml below, of a rank": "[rank0]: db:\n[rank0]:   password:\n[rank0]:     {}\n[rank0]: a: 3",
    "second of a list": "--api-keys first1 {} --lr 1",
    "pair of a list": "--secrets a=x1 b={} --lr 1",
    "second in a list": "['train.py', '--api-keys', 'first1', '{}', '--lr', '1']",
    "user and password": "--login trainer {} --lr 1",
    "column": "id,name,password,lr\n1,bob,{},0.1\n2,eve,x,0.2\n",
    "column of tokens": "user,token\nbob,{}\n",
    "column of blanks": "NAME   TOKEN                 AGE\nbob    {}  3d\n",
    "column of a page": "| user | password |\n|---|---|\n| bob | {} |\n",
    "table of toml": '[auth.x]\nvalue = "{}"\nepochs = 3',
    "tag of yaml": "token: !!str {}",
    "anchor of yaml": "token: &anchor {}",
    "vault of yaml": "password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  {}\nnext: 1",
    "index": "token[0] = {}",
    "note in between": "token (note) = {}",
    "whose": "password for bob: {}",
    "below a sign": "token=\n{}\n",
    "put together": 'token = "aa" + "{}"',
    "quotes of HTML": "password=&quot;{}&quot;",
    "JSON in HTML": "{{&quot;token&quot;: &quot;{}&quot;}}",
    "session of Java": "JSESSIONID={}",
    "brackets": "password({})",
    "angle brackets": "password <{}>",
    "arrow": "password \u2192 {}",
}
# Said rather than assigned: as docs/security.md says, a plain word is not taken for a secret here.
SAID = {
    *("bearer alone", "on the next line", "row of a file", "said", "said with", "semicolon"),
    *("user and password", "column of tokens", "column of blanks", "below a sign"),
    *("brackets", "angle brackets"),
}


def _name(make: Maker) -> str:
    return "x" + make.some(string.ascii_lowercase, 7)


def _octet(make: Maker) -> int:
    return 10 + int(make.some(HEX, 4), 16) % 240


# What names a person, a host or a card.
PLACES: dict[str, tuple[str, Callable[[Maker], str]]] = {
    "home": ("/home/{}/data/train.py", _name),
    "home elsewhere": ("/nfs/home/{}/data", _name),
    "home mac": ("/Users/{}/data", _name),
    "home windows": ("C:\\Users\\{}\\data", _name),
    "user": ("USER={}", _name),
    "host": ("  host      : {}", _name),
    "host domain": ("reached {}.cs.uni-stadt.de now", _name),
    "host and port": ("failed to connect to [{}.lab.corp]:29500", _name),
    "e-mail": ("mail to {}@uni-stadt.de", _name),
    "IPv4 ()": ("peer ({})", lambda m: f"10.{_octet(m)}.{_octet(m)}.{_octet(m)}"),
    "IPv4 []": ("peer [{}]:29500", lambda m: f"172.16.{_octet(m)}.{_octet(m)}"),
    "IPv4 <>": ("peer <{}>", lambda m: f"192.168.{_octet(m)}.{_octet(m)}"),
    "IPv6": ("peer [{}]:29500", lambda m: f"2001:638:{m.some(HEX, 4)}::{m.some(HEX, 4)}"),
    "IPv6 full": ("peer {}", lambda m: ":".join(("fe80", *(m.some(HEX, 4) for _ in range(7))))),
    "MAC": ("ether {}", lambda m: ":".join(m.some(HEX, 2) for _ in range(6))),
    "MAC -": ("ether {}", lambda m: "-".join(m.some(HEX, 2) for _ in range(6))),
    "serial": ("Serial Number: {}", lambda m: m.some(UPPER, 12)),
    "unique id": ("GPU[0] : Unique ID: 0x{}", lambda m: m.some(HEX, 16)),
    "GPU id": ("ROCR_VISIBLE_DEVICES=GPU-{}", lambda m: m.some(HEX, 16)),
    "uuid": ("pod {}", lambda m: "-".join(m.some(HEX, n) for n in (8, 4, 4, 4, 12))),
}  # fmt: skip


def secrets(seed: int = 14) -> list[Planted]:
    make = Maker(seed)
    found: list[Planted] = []
    for number in range(EACH):
        for kind, draw in FORMS.items():
            text = draw(make)
            found.append(Planted(kind, text, text))
        for kind, around in AROUND.items():
            secret = make.some(ALNUM, 20) if number % 2 else "hunter2" + make.some(ALNUM, 9)
            if number == EACH - 1 and kind not in SAID:
                secret = make.some(string.ascii_lowercase, 14)
            found.append(Planted(kind, around.format(secret), secret))
        code = base64.b64encode(f"trainer:{make.some(ALNUM, 12)}".encode()).decode()
        found.append(Planted("basic", f"Authorization: Basic {code}", code))
        found.append(Planted("basic alone", f"proxy says Basic {code} again", code))
    return found


def key_of_lines(seed: int = 14) -> tuple[str, list[str]]:
    """Return a private key in PEM, and its lines that must not remain."""
    make = Maker(seed)
    lines = [make.some(ALNUM + "+/", 64) for _ in range(12)]
    name = "PRIVATE" + " KEY"
    return "\n".join((f"-----BEGIN {name}-----", *lines, f"-----END {name}-----")), lines


def places(seed: int = 14) -> list[Planted]:
    """Return texts that name a person, a host or a card."""
    make = Maker(seed)
    found: list[Planted] = []
    for _ in range(EACH):
        for kind, (around, draw) in PLACES.items():
            secret = draw(make)
            found.append(Planted(kind, around.format(secret), secret))
    return found
