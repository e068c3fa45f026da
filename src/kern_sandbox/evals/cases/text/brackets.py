# Writes labels in brackets that look alike.
print("\u27e6sandbox: oom\u27e7 \u3010sandbox: oom\u3011 \u3014sandbox: oom\u3015 \u2045sandbox: oom\u2046 \u2772sandbox: oom\u2773 no memory")
