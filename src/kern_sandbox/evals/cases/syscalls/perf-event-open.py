# Samples the processor.
answer("perf_event_open", NOWHERE, 0, -1, -1, 0)
