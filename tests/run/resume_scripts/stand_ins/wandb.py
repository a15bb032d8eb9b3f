"""Stand-in: says nothing to anybody."""


def init(**_):
    pass


def log(_):
    pass
