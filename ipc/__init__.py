"""What Odradek's processes share: memory regions, locks, doorbells, channels.

Nothing here knows Kafka's protocol or its log format; everything above may import it, it imports nothing above.
"""
