"""Exceptions of the kit. It shares nothing with the code that it judges, so it has its own."""

__all__ = ["GuaranteesError", "HistoryError", "UnsupportedError"]


class HistoryError(ValueError):
    """A history that cannot be read: wrong whatever the system did.

    Attributes:
        number: Which one is wrong: the line from 1, or the row or happening from 0.
        unit: "line", "row" or "happening".
        field: Which field of it, or None if it is wrong as a whole.
        value: What stands there.
        requirement: What must be there, as the end of the sentence "it must ...".
    """

    def __init__(self, number: int, unit: str, field: str | None, value: object, requirement: str) -> None:
        super().__init__(number, unit, field, value, requirement)
        self.number = number
        self.unit = unit
        self.field = field
        self.value = value
        self.requirement = requirement

    def __str__(self) -> str:
        place = f"{self.unit} {self.number}"
        what = place if self.field is None else f"{self.field} of {place}"
        return f"{what} is {self.value!r}; it must {self.requirement}"


class GuaranteesError(ValueError):
    """A guarantee that can never be kept or judged.

    Attributes:
        parameter: Its name.
        value: What was given.
        requirement: What it must be, as the end of the sentence "it must ...".
    """

    def __init__(self, parameter: str, value: object, requirement: str) -> None:
        super().__init__(parameter, value, requirement)
        self.parameter = parameter
        self.value = value
        self.requirement = requirement

    def __str__(self) -> str:
        return f"{self.parameter} is {self.value!r}; it must {self.requirement}"


class UnsupportedError(NotImplementedError):
    """A driver was asked for something that it has not said its broker can do.

    Attributes:
        driver: Its class.
        method: What was asked for.
    """

    def __init__(self, driver: str, method: str) -> None:
        super().__init__(driver, method)
        self.driver = driver
        self.method = method

    def __str__(self) -> str:
        return f"{self.driver} cannot {self.method}; override it if the broker can"
