# Prints Markdown.
#> # Title
#>
#> - item **bold** `code`
#>
#> > quote
print('# Title\n\n- item **bold** `code`\n\n> quote')
