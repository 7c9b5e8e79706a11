"""plain: the join stays what it is, `y = x + F(x)`, to the last bit, forward and backward. For measuring what an edit itself costs."""

from skipway.surgery._action import Action


class Plain(Action):
    """The add as the model performs it."""

    exact = True
    passes = True
