"""How a training script may print a secret, and what it prints that is none."""

from __future__ import annotations

import time

import pytest

from rocsteady.screens.screen import json_text
from rocsteady.store.redaction import Redactor, Secrets, hide_secrets

VALUE = "Zq148vXk9Lm4Tr8Wp"

SECRETS = (
    # calls, tuples and tables of Python
    "('HF_TOKEN', '{}')",
    "(b'HF_TOKEN', b'{}')",
    "[['HF_TOKEN', '{}']]",
    "dict_items([('HF_TOKEN', '{}')])",
    "environ({'HF_TOKEN': '{}'})",
    "Namespace(hf_token='{}')",
    "SimpleNamespace(db_pass='{}')",
    "EnvVar(name='HF_TOKEN', value='{}')",
    "monkeypatch.setenv('HF_TOKEN', '{}')",
    "HF_TOKEN = os.environ.get('HF_TOKEN', '{}')",
    "huggingface_hub.login('{}')",
    "const HF_TOKEN: string = '{}'",
    # sentences
    "HF_TOKEN -> {}",
    "hf_token->{}",
    "HF_TOKEN <- {}",
    "HF_TOKEN is set to {}",
    "`HF_TOKEN` is set to `{}`",
    "HF_TOKEN has value {}",
    "HF_TOKEN has the value: {}",
    "HF_TOKEN changed from {} to another",
    "set HF_TOKEN to {}",
    "password (hidden) {}",
    "token \u201c{}\u201d was refused",
    "access token {}",
    "INFO - hf_token - {}",
    "  hf_token ........................ {}",
    "hf_token                     {}",
    "**HF_TOKEN**: {}",
    "<b>password</b>: {}",
    "password: {} value: 3",
    'token="{}" value=3',
    '<login password="{}">',
    # records
    '{"Name": "DB_PASSWORD", "Value": "{}"}',
    '{"name": "HF_TOKEN", "value": "{}"}',
    '{"key": "DB_PASSWORD", "value": "{}"}',
    '{"value": "{}", "name": "HF_TOKEN"}',
    "- name: DB_PASSWORD\n  value: {}",
    "- name: HF_TOKEN\n  type: env\n  value: '{}'",
    "- key: DB_PASSWORD\n  value: {}",
    "value: {}\n  name: DB_PASSWORD",
    "{'env': 'HF_TOKEN', 'val': '{}'}",
    # lists and tables
    "hf_tokens:\n  - {}\nlr: 1",
    "api_keys:\n  prod: {}\n  dev: y",
    "| user | token |\n|------|-------|\n| bob | {} |",
    "| token |\n|---|\n| {} |",
    "\u2503 user \u2503 token \u2503\n\u2521\u2501\u2547\u2501\u2529\n\u2502 bob \u2502 {} \u2502",
    "\u2502 DB_PASSWORD \u2502 {} \u2502",
    "   user             token\n0   bob  {}\n1  eve  x",
    "HF_TOKEN\n--------\n{}\n",
    # lines of a text that was printed in one line
    "'HF_TOKEN\\n{}'",
    "'HF_TOKEN:\\n  {}\\n'",
    '\'{\\n  "password":\\n "{}"}\'',
    # shells
    "export HF_TOKEN {}",
    "setenv HF_TOKEN {}",
    "java -Dpassword={} -jar x",
    '$env:HF_TOKEN = "{}"',
    "Set-Item Env:HF_TOKEN {}",
    "HF_TOKEN?={}",
    "password\\={}",
    # XML
    "<password>{}</password>",
    '<password type="x">{}</password>',
    "<a:password>\n  {}\n</a:password>",
    "<Password><![CDATA[{}]]></Password>",
    '<property name="db.password">{}</property>',
    "<property><name>db.password</name><value>{}</value></property>",
    "<key>password</key><string>{}</string>",
    "<td>password</td><td>{}</td>",
    # found readable from outside
    "AuthenticationError: Incorrect API key provided: {}.",
    "ValueError: bad token provided {}",
    "passWord={}",
    "--PassPhrase {}",
    '{"passWord":"{}"}',
    "--otp {}",
    "--jwt {}",
)
NEEDED = (
    "token_embedding",
    "num_tokens is set to 512",
    "key -> value",
    "key -> layers.2.weight",
    "dispatch key -> PrivateUse1",
    "1.2e6 tokens per second",
    "pad_token='[PAD]'",
    'token="<|endoftext|>"',
    "pad_token is set to eos_token",
    "Setting `pad_token_id` to `eos_token_id`:50256 for open-end generation.",
    "HF_TOKEN is not set",
    "HF_TOKEN: not set",
    "HF_TOKEN is set to true",
    "the token is set to expire in 3600 s",
    "cache key has value 0x7f3a5c000000",
    "('key', 'layer1')",
    '{"key": "lr", "value": "0.0003"}',
    '{"key": "step", "value": 17}',
    '{"name": "num_tokens", "value": "4096"}',
    '{"name": "key", "value": "layer17"}',
    '- name: HSA_OVERRIDE_GFX_VERSION\n  value: "11.0.0"',
    "tokens:\n  - hello\n  - world2",
    "tokens:\n  train: 1.2B\n  test: 300M",
    "| name | tokens |\n|---|---|\n| train | 1.2B |",
    "| key | value |\n|---|---|\n| optimizer | adamw_8bit |",
    "\u2502 key \u2502 blocks.0.attn.k_proj \u2502",
    "could not export key layer_17",
    "setenv ROCM_PATH /opt/rocm-6.4.1",
    '$env:HIP_VISIBLE_DEVICES = "0,1"',
    "2026-11-15 05:15:10,623 | INFO | passwords 3\n2026-11-15 05:15:10,623 | INFO | lr 0.002",
    "<key>layer1</key>",
    "<name>resnet50</name>",
    "'Enter the password:\\nKilled'",
    'password\\n  File "train.py", line 17',
    "pass 3 of 4",
    "the key provided by the user",
    "compass word 12",
)  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_the_value_is_hidden_and_its_name_stays(text: str) -> None:
    nobody = Redactor(homes=[], users=[], hosts=[])
    for redact in (Secrets().text, nobody.text):
        told = redact(text.replace("{}", VALUE))
        assert VALUE[:8] not in told
        assert VALUE[-8:] not in told
        assert [name in told for name in ("HF_TOKEN", "DB_PASSWORD", "db.password")] == [
            name in text for name in ("HF_TOKEN", "DB_PASSWORD", "db.password")
        ]


@pytest.mark.parametrize("text", NEEDED)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Secrets().text(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "value: ",
        "name: token value=",
        "<a>b</a>",
        "<token ",
        "token is set to ",
        "tokens:\n",
        "key\\n",
    ],
)
def test_time_grows_with_the_length_only(piece: str) -> None:
    took = []
    for length in (10_000, 80_000):
        text = (piece * length)[:length]
        began = time.process_time()
        Secrets().text(text)
        took.append(time.process_time() - began)

    assert took[1] < 24 * max(took[0], 0.01)  # 64 times, if it grew with the square


def test_bytes_that_are_no_text_do_not_break_json() -> None:
    assert json_text({"command": ["caf\udce9"]}, indent=0) == '{"command":["caf\\\\xe9"]}\n'


@pytest.mark.parametrize("stamp", ["2026-11-16T22:54:52.123Z ", "22:54:52 "])
def test_the_times_before_lines_of_a_log_hide_nothing_that_stands_below_its_name(
    stamp: str,
) -> None:
    lines = ["password: |", "  Mm7yamlPw1", "passwords:", "  - Mp7listPwA", "--password", "Ml7cli9"]
    log = "\n".join(f"{stamp}{line}" for line in [*lines, "loss 0.3"])

    for redact in (Secrets().text, hide_secrets):
        told = redact(log)
        assert not any(secret in told for secret in ("Mm7yamlPw1", "Mp7listPwA", "Ml7cli9"))
        assert told.count(stamp) == len(lines) + 1
        assert told.endswith("loss 0.3")
