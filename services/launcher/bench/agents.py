"""The agents of `draftmesh bench`: conversations with tools, whose whole history is sent again at every step.

The assistant's earlier messages are fixed here instead of taken from the server, so that every server answers the same
requests. Tools are plain text, because not every server supports tool calls.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Agent:
    """A task, and the steps so far: what the assistant said and what its tool answered."""

    task: str
    steps: tuple[tuple[str, str], ...]


SYSTEM: Final = (
    "You are a careful assistant that works with tools. To use one, answer with a single line such as\n"
    "CALL read_file path=src/main.py\n"
    "and wait for its result. Tools: list_files(folder), read_file(path), search(text), run_tests(name), query(sql)."
    " Before each call say in two or three sentences what you know by now and why this is the next step. When you are"
    " done, write a summary of what you found, what you would change, and how it can be checked."
)

AGENTS: Final = (
    Agent(
        "Since yesterday the nightly import counts some customers twice. Find out why and propose a fix.",
        (
            (
                "I know only the symptom, so I begin with where the import reads its rows.\n"
                "CALL search text=import_rows",
                "src/jobs/nightly.py:12: from shop.imports import import_rows\n"
                "src/jobs/nightly.py:41:     added, changed = import_rows(source, session)\n"
                "src/shop/imports.py:18: def import_rows(source, session):\n"
                "tests/test_imports.py:9: def test_import_rows_updates_known_customers():",
            ),
            (
                "The function is in src/shop/imports.py. How it recognises a known customer decides whether one can be"
                " counted twice.\nCALL read_file path=src/shop/imports.py",
                "def key(row):\n    return (row['email'].strip(), row['country'])\n\n\n"
                "def import_rows(source, session):\n    known = {key(one): one for one in session.customers()}\n"
                "    added = changed = 0\n    for row in source:\n        customer = known.get(key(row))\n"
                "        if customer is None:\n            session.add(row)\n            added += 1\n"
                "        elif customer.update(row):\n            changed += 1\n    session.commit()\n"
                "    return added, changed",
            ),
        ),
    ),
    Agent(
        "The page /reports takes eight seconds for large customers. Say what is slow and how to make it fast.",
        (
            (
                "Eight seconds for large customers only sounds like work per row. I look at the code behind the page"
                " first.\nCALL search text=/reports",
                "app/routes.py:88: router.get('/reports', reports_page)\napp/reports.py:5: def reports_page(request):\n"
                "app/reports.py:31: def totals(customer):\ntests/test_reports.py:14: client.get('/reports?year=2025')",
            ),
            (
                "The page is built in app/reports.py, and `totals` is a likely place for a query per row.\n"
                "CALL read_file path=app/reports.py",
                "def reports_page(request):\n    year = int(request.query['year'])\n"
                "    customers = Customer.of(request.user)\n    rows = []\n    for customer in customers:\n"
                "        rows.append((customer.name, totals(customer), last_order(customer)))\n"
                "    return render('reports.html', rows=rows, year=year)\n\n\ndef totals(customer):\n"
                "    orders = Order.where(customer_id=customer.id)\n"
                "    return sum(line.cents for order in orders for line in order.lines())\n\n\n"
                "def last_order(customer):\n    orders = Order.where(customer_id=customer.id)\n"
                "    return max((order.placed_at for order in orders), default=None)",
            ),
        ),
    ),
    Agent(
        "Which of our three warehouses runs out of article A-1044 first, and when? Orders come in as in last month.",
        (
            (
                "I need the stock per warehouse and the rate at which each one ships the article. Stock comes first.\n"
                "CALL query sql=SELECT warehouse, on_hand, reserved FROM stock WHERE sku = 'A-1044'",
                "warehouse | on_hand | reserved\n----------+---------+---------\nHamburg   |     940 |       85\n"
                "Leipzig   |     310 |       22\nUlm       |     615 |      140\n(3 rows)",
            ),
            (
                "Free stock is 855 in Hamburg, 288 in Leipzig and 475 in Ulm. Now last month's shipments per warehouse"
                " and week.\nCALL query sql=SELECT warehouse, week, sum(quantity) FROM shipments WHERE sku = 'A-1044'"
                " GROUP BY 1, 2 ORDER BY 1, 2",
                "warehouse | week | sum\n----------+------+-----\nHamburg   |   40 | 121\nHamburg   |   41 | 133\n"
                "Hamburg   |   42 | 128\nHamburg   |   43 | 140\nLeipzig   |   40 |  36\nLeipzig   |   41 |  41\n"
                "Leipzig   |   42 |  39\nLeipzig   |   43 |  52\nUlm       |   40 |  97\nUlm       |   41 | 104\n"
                "Ulm       |   42 |  88\nUlm       |   43 |  99\n(12 rows)",
            ),
        ),
    ),
    Agent(
        "The test test_resume_after_crash fails about once in ten runs. Find the race and say how to remove it.",
        (
            (
                "A failure once in ten runs is most likely a matter of order in time. I want to see how it fails.\n"
                "CALL run_tests name=test_resume_after_crash",
                "FAILED tests/test_queue.py::test_resume_after_crash\n"
                "    assert worker.done == ['a', 'b', 'c']\n"
                "E   AssertionError: assert ['a', 'b', 'b', 'c'] == ['a', 'b', 'c']\n"
                "1 failed, 9 passed in 4.31s (10 runs)",
            ),
            (
                "Task b was done twice: once before the crash and once after it. So what marks a task as done comes too"
                " late, or is not read on resuming.\nCALL read_file path=src/queue/worker.py",
                "class Worker:\n    def run(self):\n        while task := self.queue.claim(self.name, lease=5):\n"
                "            result = task.execute()\n            self.done.append(task.id)\n"
                "            self.queue.complete(task.id, result)\n\n    def resume(self):\n"
                "        for task in self.queue.unfinished(self.name):\n            self.queue.release(task.id)\n"
                "        self.run()\n\n    def crash(self):\n        self.queue.disconnect(self.name)",
            ),
        ),
    ),
)
