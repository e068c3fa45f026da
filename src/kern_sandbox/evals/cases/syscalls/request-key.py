# Asks for a key.
answer("request_key", NOWHERE, NOWHERE, 0, -3)
