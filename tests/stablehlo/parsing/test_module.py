"""Values that ops and regions of a module read."""

from tf2jax_lite.stablehlo.parsing.module import Op, Region, finish, free_values


def op(operands, results, *regions, name="stablehlo.add"):
    return Op(name, operands, results, (None,) * len(results), (None,) * len(operands), {}, regions)


# Values 1 and 2 are those around; the outer region computes 11 of its argument 10, the inner one 21.
INNER = Region((20,), (None,), (op((20, 11, 1), (21,)),), (21,))
OUTER = Region((10,), (None,), (op((10, 2), (11,)), op((11,), (12,), INNER, name="stablehlo.while")), (12,))


def test_free_values_are_those_of_outer_regions():
    assert free_values(INNER) == {11, 1}
    assert free_values(OUTER) == {1, 2}
    assert free_values(Region((), (), (), (7,))) == {7}


def test_finish_keeps_what_nested_regions_read():
    ops = (op((0,), (1,)), op((0,), (2,)), op((0,), (3,)), op((0,), (4,), OUTER, name="stablehlo.while"))
    kept = finish((0,), ops, (4,))
    assert [op.results for op in kept] == [(1,), (2,), (4,)]
    assert [set(op.release) for op in kept] == [set(), set(), {0, 1, 2}]
