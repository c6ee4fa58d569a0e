"""The client while something breaks: scripted, and against a node whose history is judged.

test_kills.py, judged by the history's checker:
    node killed; SIGTERM of the node and of a worker; slow node; clock step; full disk
                        test_faults_of_a_node_lose_and_double_nothing
    handlers that raise, hang or block the loop
                        test_handlers_that_raise_hang_and_block_lose_nothing
test_hanging_proxy.py, judged by it:
    hanging proxy       test_a_hanging_proxy_loses_and_doubles_nothing
test_wrong_keys.py, judged by it:
    wrong key           test_wrong_keys_lose_and_double_nothing
test_broken_sends.py, against a scripted server:
    hanging proxy       test_what_hangs_ends_with_the_budget
../consuming/test_consumer.py:
    hanging proxy       test_a_receive_that_hangs_in_a_proxy_is_asked_again
    wrong key           test_a_wrong_key_ends_a_worker_and_the_log_says_so_at_once
    the client's clock  test_a_step_of_the_clock_changes_no_numbers
    SIGTERM             test_sigterm_drains_a_worker
../cluster: leaders killed, leaders frozen
"""
