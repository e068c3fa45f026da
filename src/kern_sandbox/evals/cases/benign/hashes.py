# Computes hashes and a signature.
#> ba7816bf 900150983cd24fb0d6963f7d28e17f72 True
import hashlib, hmac
print(hashlib.sha256(b"abc").hexdigest()[:8], hashlib.md5(b"abc").hexdigest(), hmac.compare_digest(hmac.digest(b"k", b"m", "sha256"), hmac.new(b"k", b"m", "sha256").digest()))
