"""The edits of `draftmesh bench`: a file and a change that leaves most of it as it is, so that answers mostly copy."""

from typing import Final

_INVENTORY: Final = '''\
class Inventory:
    """Articles in stock, by their number."""

    def __init__(self) -> None:
        self._stock: dict[str, int] = {}
        self._reserved: dict[str, int] = {}

    def add(self, sku: str, quantity: int) -> None:
        if quantity <= 0:
            raise ValueError("quantity must be positive")
        self._stock[sku] = self._stock.get(sku, 0) + quantity

    def reserve(self, sku: str, quantity: int) -> bool:
        if quantity <= 0:
            raise ValueError("quantity must be positive")
        free = self._stock.get(sku, 0) - self._reserved.get(sku, 0)
        if free < quantity:
            return False
        self._reserved[sku] = self._reserved.get(sku, 0) + quantity
        return True

    def ship(self, sku: str, quantity: int) -> None:
        if self._reserved.get(sku, 0) < quantity:
            raise ValueError("nothing reserved")
        self._reserved[sku] -= quantity
        self._stock[sku] -= quantity

    def available(self, sku: str) -> int:
        return self._stock.get(sku, 0) - self._reserved.get(sku, 0)
'''

_BASKET: Final = """\
export interface Line {
  sku: string;
  quantity: number;
  cents: number;
}

export class Basket {
  private lines: Line[] = [];

  add(sku: string, quantity: number, cents: number): void {
    const line = this.lines.find((one) => one.sku === sku);
    if (line) {
      line.quantity += quantity;
      return;
    }
    this.lines.push({ sku, quantity, cents });
  }

  remove(sku: string): void {
    this.lines = this.lines.filter((one) => one.sku !== sku);
  }

  get total(): number {
    return this.lines.reduce((sum, one) => sum + one.quantity * one.cents, 0);
  }

  get count(): number {
    return this.lines.reduce((sum, one) => sum + one.quantity, 0);
  }

  describe(): string {
    return this.lines.map((one) => `${one.quantity} x ${one.sku}`).join(", ");
  }
}
"""

_COMPOSE: Final = """\
services:
  web:
    image: registry.example/shop-web:1.8
    restart: unless-stopped
    environment:
      DATABASE_URL: postgres://shop@database/shop
      CACHE_URL: redis://cache:6379/0
      LOG_LEVEL: info
    ports:
      - "8080:8080"
    depends_on:
      - database
      - cache
  worker:
    image: registry.example/shop-worker:1.8
    restart: unless-stopped
    environment:
      DATABASE_URL: postgres://shop@database/shop
      CACHE_URL: redis://cache:6379/0
      LOG_LEVEL: info
    depends_on:
      - database
      - cache
  database:
    image: postgres:17
    volumes:
      - database:/var/lib/postgresql/data
  cache:
    image: redis:8
volumes:
  database:
"""

_PARSER: Final = """\
func ParseLine(line string) (Entry, error) {
	fields := strings.SplitN(line, " ", 4)
	if len(fields) < 4 {
		return Entry{}, fmt.Errorf("too few fields: %d", len(fields))
	}
	at, err := time.Parse(time.RFC3339, fields[0])
	if err != nil {
		return Entry{}, err
	}
	level, err := ParseLevel(fields[1])
	if err != nil {
		return Entry{}, err
	}
	return Entry{At: at, Level: level, Source: fields[2], Text: fields[3]}, nil
}

func ReadAll(reader io.Reader) ([]Entry, error) {
	var entries []Entry
	scanner := bufio.NewScanner(reader)
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" {
			continue
		}
		entry, err := ParseLine(line)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, scanner.Err()
}
"""


def _edit(change: str, language: str, file: str) -> str:
    return (
        f"Here is a file:\n\n```{language}\n{file}```\n\n{change} Leave everything else exactly as it is. Answer with"
        " the whole file in one code block and nothing else."
    )


EDIT: Final = (
    _edit(
        "Add a method `release(sku, quantity)` that takes back a reservation and raises ValueError if less is reserved,"
        " and rename `available` to `free`.",
        "python",
        _INVENTORY,
    ),
    _edit(
        "Add an optional `note: string` to `Line`, let `add` take it as a last argument, and make `describe` append it"
        " in brackets where there is one.",
        "typescript",
        _BASKET,
    ),
    _edit(
        "Set LOG_LEVEL to debug for the worker only, raise both shop images to 1.9, and give the database a health"
        " check with pg_isready every ten seconds.",
        "yaml",
        _COMPOSE,
    ),
    _edit(
        "Let `ReadAll` say in its errors in which line of the input it failed, counting from 1, and let it skip lines"
        " that begin with a hash sign.",
        "go",
        _PARSER,
    ),
)
