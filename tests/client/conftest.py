"""The fixtures of `curlew_client.testing`, as other people's tests have them."""

from curlew_client.testing import curlew, curlew_node

__all__ = ["curlew", "curlew_node"]
