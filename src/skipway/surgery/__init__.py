"""Surgery on the skip path: select, plan, apply, verify, undo.

    edit = skipway.rewire(model, *inputs).sites(kind="ffn").to("rezero").apply()
    edit.verify(*inputs); edit.save("edit.safetensors"); edit.undo()
    skipway.reapply(model, "edit.safetensors")
"""

from skipway.surgery._select import Selection as Selection
from skipway.surgery.edit import Edit as Edit
from skipway.surgery.rewire import Plan as Plan
from skipway.surgery.rewire import Rewiring as Rewiring
from skipway.surgery.rewire import rewire as rewire
from skipway.surgery.store import reapply as reapply
from skipway.surgery.verify import Verification as Verification
