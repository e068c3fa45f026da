# Prints emoji, with joiners, skins and flags.
#> 👨‍👩‍👧 👍🏽 🇩🇪 ❤️
print('\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2764\ufe0f')
