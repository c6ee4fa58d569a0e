"""The modules of routes, also those in folders below: each is part of the control plane."""

import pkgutil
from importlib import import_module

from app.api.control import routes
from app.api.control.operation_list import OPERATIONS, ROUTERS
from app.api.control.operation_router import OperationRouter

MODULES = [
    import_module(module.name)
    for module in pkgutil.walk_packages(routes.__path__, f"{routes.__name__}.")
    if not module.ispkg
]


def test_the_router_of_every_module_is_listed() -> None:
    made = [each.router for each in MODULES]
    assert all(isinstance(each, OperationRouter) for each in made)
    assert {id(each) for each in made} == {id(each) for each in ROUTERS}


def test_no_two_operations_have_one_route_or_one_name() -> None:
    assert len({each.route for each in OPERATIONS}) == len(OPERATIONS)
    assert len({each.operation_id for each in OPERATIONS}) == len(OPERATIONS)
