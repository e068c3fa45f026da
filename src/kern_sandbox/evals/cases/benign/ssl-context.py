# Makes a context for TLS with the system's certificates.
#> True
import ssl
context = ssl.create_default_context()
print(len(context.get_ca_certs()) > 10 and context.check_hostname)
