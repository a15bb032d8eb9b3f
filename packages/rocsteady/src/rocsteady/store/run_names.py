"""Names for runs: two words that are easy to say, type and tell apart."""

from __future__ import annotations

import random
import re
from collections.abc import Collection

from rocsteady.errors import JournalError

LONGEST_NAME = 48  # characters; a name is also the name of a folder
RESERVED = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]")  # by Windows, for no file or folder
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

_ADJECTIVES = """
    able agile airy amber ample apt azure balmy bold brave breezy bright brisk broad calm candid
    careful cheery clear clever coral cosy crisp curious daring deft dewy eager early easy elder
    even fair fast fine firm fleet fond frank free fresh frosty gentle glad golden good grand green
    handy happy hardy hazel honest humble ideal ivory jade jolly keen kind large lively loyal lucid
    lucky lunar mellow merry mild misty modest neat nimble noble olive open patient placid plain
    plucky polite prime proud quick quiet rapid ready robust rosy ruby rustic sage sandy serene
    sharp silent silver simple sleek smart smooth snowy solar solid spry stable steady stout sunny
    sure swift tall tame tender tidy tough trim true trusty upbeat vivid warm wary wide wild wise
    witty young zesty
"""
_ANIMALS = """
    adder albatross alpaca ant antelope auk badger bat bear beaver bee beetle bison bittern boar
    bream buffalo bustard camel carp cat civet cod condor coot cormorant crab crane cricket crow
    cuckoo curlew deer dingo dipper dolphin dormouse dove duck dunlin eagle eel egret elk emu ermine
    falcon ferret finch fox frog gannet gazelle gecko gibbon goat goose goshawk grebe grouse gull
    hare harrier hawk hedgehog heron hippo hobby hoopoe horse ibex ibis jackal jackdaw jaguar jay
    kestrel kite kiwi koala lapwing lark lemming lemur leopard linnet lion lizard llama lobster lynx
    magpie mallard marmot marten martin merlin mink mole moose moth mouse mule newt nuthatch ocelot
    okapi orca osprey otter owl ox oyster panda panther parrot pelican penguin perch petrel pigeon
    pike pipit plover pony porpoise puffin puma quail rabbit raccoon raven redstart reindeer robin
    rook ruff salmon seal shark sheep shrew shrike siskin skua skunk snail snipe sparrow squid
    starling stilt stoat stork swallow swan swift tapir teal tern thrush tiger toad toucan trout
    tuna turtle viper vole vulture walrus warbler weasel whale wigeon wolf wombat wren yak zebra
"""
ADJECTIVES, ANIMALS = tuple(_ADJECTIVES.split()), tuple(_ANIMALS.split())


def new_name(taken: Collection[str], chance: random.Random | None = None) -> str:
    """Return a name that is not taken; with a number when most pairs are."""
    chance = chance or random.SystemRandom()
    number = 1
    while True:
        for _ in range(20):
            pair = f"{chance.choice(ADJECTIVES)}-{chance.choice(ANIMALS)}"
            name = pair if number == 1 else f"{pair}-{number}"
            if name not in taken:
                return name
        number += 1


def check_name(name: str) -> str:
    """Return ``name``, or say why it cannot be one."""
    if len(name) > LONGEST_NAME:
        raise JournalError(
            f"the name is longer than {LONGEST_NAME} characters: {name[:LONGEST_NAME]!r}..."
        )
    if not SLUG.fullmatch(name) or RESERVED.fullmatch(name):
        raise JournalError(
            f"{name!r} is not a name: use lower case words or numbers joined by hyphens,"
            " as in calm-otter"
        )
    return name
