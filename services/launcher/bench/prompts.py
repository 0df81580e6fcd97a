"""The single questions of `draftmesh bench`: talk, programming and arithmetic, each long enough to fill an answer."""

from typing import Final

CHAT: Final = (
    "My sister moves into her first flat next month and has never cooked. What should I give her for the kitchen if I"
    " can spend about 150 euros, which three dishes could I teach her in one evening, and how do I keep her from"
    " living on noodles? Please say why you chose each thing.",
    "I have to tell a colleague whom I like that his reports are too long and that nobody reads them. He is proud of"
    " them. How would you open that conversation, what would you avoid saying, and what could he try for his next"
    " report? Give me a few sentences that I could actually say.",
    "Explain to a curious twelve-year-old why the Moon always shows us the same face, why there are nevertheless two"
    " tides a day, and what would change if the Moon were only half as far away. Use things that one can try at home"
    " with a ball and a lamp.",
    "We want to walk for five days in the autumn with two children of eight and eleven, no longer than four hours a"
    " day, sleeping in huts or small inns. How do we choose a region, what do we pack, what do we do on a day of"
    " rain, and how do we keep the children in a good mood on the last hour of each day?",
)

CODE: Final = (
    "Write a Python module with a class `TokenBucket` for rate limiting: capacity, refill rate per second, a method"
    " `try_take(n)` that never blocks and a coroutine `take(n)` that waits. Pass the clock in so that it can be"
    " tested. Add type hints, docstrings and four pytest tests with a fake clock.",
    "Write a command line tool in Go that reads newline-delimited JSON from standard input, groups the records by a"
    " field named with -by, and prints count, minimum, mean and maximum of another field named with -value as an"
    " aligned table. Handle records that lack a field, and explain how you would test it.",
    "I have the PostgreSQL tables customers(id, name, country), orders(id, customer_id, placed_at) and"
    " lines(order_id, sku, quantity, cents). Write one query for the three best-selling articles per country in each"
    " month of the last year, with their share of that month's revenue. Then say which indexes help, and why.",
    "Implement in TypeScript a function `debounceAsync(fn, ms)` that delays calls, drops all but the latest, returns"
    " to every caller the promise of the call that was really made, and can be cancelled. Write it without"
    " libraries, with full types, and add tests with fake timers for the three hardest cases.",
)

MATH: Final = (
    "A tank holds 1,200 litres. Pump A fills it in 8 hours, pump B in 12 hours, and a leak empties a full tank in 30"
    " hours. The leak starts when the tank is one third full. How long do both pumps together need from empty to"
    " full? Show every step and check the result at the end.",
    "In a class of 30 pupils 18 play football, 15 play an instrument and 12 draw. 8 do football and instrument, 6"
    " football and drawing, 5 instrument and drawing, and 3 do all three. How many do nothing of it, and what is the"
    " chance that two pupils drawn at random both do exactly one? Work it out step by step.",
    "Someone borrows 24,000 euros at 4.5 percent a year, compounded monthly, and pays back the same amount at the end"
    " of every month for five years. Derive the formula for the monthly payment, compute it, and give the interest"
    " paid in the first and in the last year. Show all intermediate values.",
    "A ladder of 6.5 metres leans against a wall. Its foot slides away at 0.4 metres per second. How fast does its top"
    " slide down at the moment when the foot is 2.5 metres from the wall, how fast does the angle at the ground"
    " change then, and at which distance are both speeds equal? Explain each step.",
)
