# Prints Chinese, Japanese and Korean, with their brackets.
#> 【重要】 你好世界 こんにちは 안녕하세요 「引用」
print('\u3010\u91cd\u8981\u3011 \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155\ud558\uc138\uc694 \u300c\u5f15\u7528\u300d')
