"""An emulated GPU-class target inside the real software: decodes take as long as a published curve says."""
