# Leaves what a copy out of the box would follow: a link, and a directory that became one.
mkdir -p out && ln -s "$secret" out/report.txt && mv out kept && ln -s "$victim" out
