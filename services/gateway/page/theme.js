// Light or dark, as the system has it or as was chosen here. Loaded before the first paint, so that nothing flashes.
(() => {
  const CHOICES = ["automatic", "light", "dark"];
  const STORED = "draftmesh.theme";

  function chosen() {
    try {
      const theme = localStorage.getItem(STORED);
      return CHOICES.includes(theme) ? theme : CHOICES[0];
    } catch {
      return CHOICES[0]; // storage is off
    }
  }

  function apply(theme) {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  }

  apply(chosen());
  document.addEventListener("DOMContentLoaded", () => {
    apply(chosen());
    document.getElementById("theme").addEventListener("click", () => {
      const theme = CHOICES[(CHOICES.indexOf(document.documentElement.dataset.theme) + 1) % CHOICES.length];
      try {
        localStorage.setItem(STORED, theme);
      } catch {
        // It holds until the page is left.
      }
      apply(theme);
    });
  });
})();
