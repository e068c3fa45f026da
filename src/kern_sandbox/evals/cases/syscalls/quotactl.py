# Changes disk quotas.
answer("quotactl", 0x7FFFFF, NOWHERE, 0, 0)
