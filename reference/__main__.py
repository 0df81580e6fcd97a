"""`python -m reference`: writes the generated pages."""

from reference.pages import FOLDER, PAGES

FOLDER.mkdir(exist_ok=True)
for name, text in PAGES.items():
    (FOLDER / name).write_text(text())
