"""The bytes of HTTP/1.1 and of Curlew's messages. Pure: no sockets, no clock, no threads."""
