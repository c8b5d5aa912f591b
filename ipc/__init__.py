"""Inter-process communication between Odradek's processes: memory regions, locks, doorbells, channels.

Nothing here knows Kafka's protocol or its log format; all higher packages may import it, it imports none of them.
"""
