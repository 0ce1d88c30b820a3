"""JobCoordinatorMetadata: which deployment, configuration and job model an attempt runs (SAMZA-2609)."""

from __future__ import annotations

from dataclasses import dataclass

from grete.errors import IllegalStateError


@dataclass(frozen=True, slots=True, repr=False)
class JobCoordinatorMetadata:
    """Three ids, none of them blank; they are checked in this order (S0-3).

    Raises:
        IllegalStateError: an id is None, empty or white space.
    """

    epoch_id: str
    config_id: str
    job_model_id: str

    def __post_init__(self) -> None:
        for value, name in (
            (self.epoch_id, "Epoch ID"),
            (self.config_id, "Config ID"),
            (self.job_model_id, "Job Model ID"),
        ):
            if value is None or not value.strip():
                raise IllegalStateError(f"{name} cannot be empty")

    def __repr__(self) -> str:
        return (
            f"JobCoordinatorMetadata{{configId='{self.config_id}', epochId='{self.epoch_id}', "
            f"jobModelId='{self.job_model_id}'}}"
        )
